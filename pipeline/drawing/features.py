"""Names of the sets of features on which probes are trained, for tables and for descriptions of figures."""

NAMES = {
    "t0": "t0",
    "t0_A0": "t0 and A0",
    "t0_sampled": "t0, sampled",
    "t0_binary": "t0, sampled, 0 or 1",
    "mu_sigma": "VAE: mu and sigma",
    "posterior": "SCAE: posterior presences",
    "prior": "SCAE: prior presences",
    "class_capsules": "CapsNet: class capsules",
    "children": "expected children",
}


def name_of(features: str) -> str:
    """The name in `NAMES` of the set of features with the key `features`; the key itself if it is not in `NAMES`."""
    return NAMES.get(features, features)
