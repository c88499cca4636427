"""What the sweep of bad input takes as right although its rules say otherwise, and why."""

from judge import Allowed

# scikit-learn checks tables and targets, and its estimator checks ask for its own exceptions.
SKLEARN = {
    "CentralClassifier.fit": ("X", "y"),
    "CentralClassifier.predict": ("X",),
    "ConsensusADMMClassifier.fit": ("X", "y"),
    "ConsensusADMMClassifier.predict": ("X",),
    "LDPFedSGDClassifier.fit": ("X", "y"),
    "LDPFedSGDRegressor.predict": ("X",),
    "LabelProportionClassifier.fit": ("X", "proportions"),
    "LabelProportionClassifier.predict": ("X",),
    "LocalOnlyRegressor.predict": ("X",),
    "LocalPrivatizer.transform": ("X",),
    "PrivateGLVQ.fit": ("X", "y"),
    "PrivateGMLVQ.fit": ("X", "y"),
    "PrivateGMLVQ.transform": ("X",),
}

ZERO, NONE = {"zero"}, {"none"}
TAKEN = {
    # delta = 0 is pure differential privacy.
    ("Composition.epsilon", "delta"): ZERO,
    ("dpcore.accounting.verify", "delta"): ZERO,
    ("dpcore.audit.learner", "delta"): ZERO,
    ("dpcore.audit.mechanism", "delta"): ZERO,
    # A ledger without a delta allows pure releases only.
    ("dpcore.Ledger", "delta"): ZERO | NONE,
    # A law that is sampled exactly is at distance 0.
    ("dpcore.accounting.GaussianEvent", "law_distance"): ZERO,
    ("dpcore.accounting.SampledGaussianEvent", "law_distance"): ZERO,
    # What costs nothing composes to nothing.
    ("dpcore.accounting.zcdp_epsilon", "rho"): ZERO,
    # The claim of a mechanism is its own by default.
    ("dpcore.audit.mechanism", "epsilon"): NONE,
    # A coin may never show heads.
    ("dpcore.random.bernoulli", "p"): ZERO,
    # Losses without a bound exist; private fits refuse them.
    ("dpcore.federated.Loss", "derivative_bound"): {"infinity"},
    ("dpcore.federated.Loss", "curvature_bound"): {"infinity"},
    # No noise, which `privacy_` says.
    ("dpcore.learners.ConsensusADMMClassifier", "epsilon"): NONE,
    ("dpcore.learners.ConsensusADMMRegressor", "epsilon"): NONE,
    ("dpcore.learners.LabelProportionNetwork", "epsilon"): NONE,
    ("dpcore.learners.PrivateForecaster", "epsilon"): NONE,
    ("dpcore.learners.forecast.release_counts", "epsilon"): NONE,
    ("dpcore.learners.suggest_parameters", "epsilon"): NONE,
    ("dpcore.secure.Parameters", "noise_sigma"): ZERO,
    # Rows are not scaled, and nothing is private.
    ("dpcore.learners.CentralClassifier", "row_norm"): NONE,
    ("dpcore.learners.CentralRegressor", "row_norm"): NONE,
    ("dpcore.learners.LocalOnlyClassifier", "row_norm"): NONE,
    ("dpcore.learners.LocalOnlyRegressor", "row_norm"): NONE,
    # The weight of a round in ADMM, here one for each of two rounds; no loss.
    ("dpcore.learners.ConsensusADMMClassifier", "rho"): {"array"},
    ("dpcore.learners.ConsensusADMMRegressor", "rho"): {"array"},
    # A value that is missing has no bin.
    ("Bins.label", "values"): {"nan"},
}

# Whether a number is finite shows while it is encoded: its report was paid for, none was sent.
NOT_FINITE = {"nan", "infinity", "minus infinity", "array of nan", "matrix of infinities"}
# A step of such a length overflows when it is made; what was sent before was paid for.
HUGE = {"huge float"}
CHARGED = {
    ("DuchiMulti.encode", "x"): NOT_FINITE,
    ("Mechanism.encode", "x"): NOT_FINITE,
    ("Mechanism.privatize", "x"): NOT_FINITE,
    ("Tuple.encode", "columns"): NOT_FINITE,
    **{
        (f"dpcore.learners.LDPFedSGD{kind}", parameter): HUGE
        for kind in ("Classifier", "Regressor")
        for parameter in ("alpha", "clip", "learning_rate")
    },
}

ALLOWED = Allowed(
    taken=TAKEN,
    foreign={(name, parameter) for name, listed in SKLEARN.items() for parameter in listed},
    charged=CHARGED,
)
