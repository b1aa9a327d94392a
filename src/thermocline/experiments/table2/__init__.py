"""Table 2 of [masarczyk2025softmax]: out-of-distribution detection by NECO, cold and hot.

How many dimensions the paper keeps is not known. Ours follow the rule that needs no test data, 90 % of the training
variance. Beside it stands the AUROC at the number that is best for the very images reported on, which is how NECO's authors
choose it.
"""
