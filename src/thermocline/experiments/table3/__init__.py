"""Table 3 of [masarczyk2025softmax]: VGG-19, which is collapsed at T = 1 already.

The paper says neither whether its VGG-19 is normalised nor how it is initialised. Ours has batch normalisation, without
which it did not begin to learn at this rate in a trial, and torch's initialisation, from which its logits start small.
"""
