"""Table 1 of [masarczyk2025softmax]: effective depth, OOD drop and solution rank, cold and hot."""
