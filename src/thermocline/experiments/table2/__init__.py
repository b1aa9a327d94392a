"""Table 2 of [masarczyk2025softmax]: out-of-distribution detection by NECO, cold and hot."""
