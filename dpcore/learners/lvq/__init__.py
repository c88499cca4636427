"""Prototype learning: GLVQ, GMLVQ and GRLVQ, private and not."""

from dpcore.learners.lvq.plain import GLVQ, GMLVQ
from dpcore.learners.lvq.private import PrivateGLVQ, PrivateGMLVQ
from dpcore.learners.lvq.public import InferredPublicWarning

__all__ = ["GLVQ", "GMLVQ", "InferredPublicWarning", "PrivateGLVQ", "PrivateGMLVQ"]
