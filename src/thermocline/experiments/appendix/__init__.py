"""What the appendix of [masarczyk2025softmax] is said to hold. We do not have it: claims are as the main text states them."""
