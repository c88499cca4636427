"""Table 1 of differentially private GLVQ and GMLVQ, made again."""
