"""Table 3 of [masarczyk2025softmax]: VGG-19, which is collapsed at T = 1 already."""
