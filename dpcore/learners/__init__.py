"""Learners with scikit-learn's conventions; each says in `privacy_` what it guarantees."""

import warnings

from dpcore.learners.admm import ConsensusADMMClassifier, ConsensusADMMRegressor
from dpcore.learners.baselines import (
    CentralClassifier,
    CentralRegressor,
    LocalOnlyClassifier,
    LocalOnlyRegressor,
)
from dpcore.learners.fedsgd import LDPFedSGDClassifier, LDPFedSGDRegressor
from dpcore.learners.forecast.forecaster import PrivateForecaster
from dpcore.learners.label_baselines import make_baseline
from dpcore.learners.label_network import LabelProportionNetwork
from dpcore.learners.label_proportions import LabelProportionClassifier
from dpcore.learners.label_rules import suggest_parameters
from dpcore.learners.lvq import GLVQ, GMLVQ, InferredPublicWarning, PrivateGLVQ, PrivateGMLVQ
from dpcore.learners.privatizer import LocalPrivatizer

# Notebooks show learners with their docstrings, of which scikit-learn's parser knows no such head.
warnings.filterwarnings("ignore", r"Unknown section (Privacy|Cost)", UserWarning)

__all__ = [
    "GLVQ",
    "GMLVQ",
    "CentralClassifier",
    "CentralRegressor",
    "ConsensusADMMClassifier",
    "ConsensusADMMRegressor",
    "InferredPublicWarning",
    "LDPFedSGDClassifier",
    "LDPFedSGDRegressor",
    "LabelProportionClassifier",
    "LabelProportionNetwork",
    "LocalOnlyClassifier",
    "LocalOnlyRegressor",
    "LocalPrivatizer",
    "PrivateForecaster",
    "PrivateGLVQ",
    "PrivateGMLVQ",
    "make_baseline",
    "suggest_parameters",
]
