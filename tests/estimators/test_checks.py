"""Every estimator passes all of scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn import CompressiveAutoencoder, CompressivePCA, CompressiveRidge
from sketchlearn.discovery import classes_declaring

OWN = {"kmeans", "mixture"}  # checked beside their other tests
OWN |= {"autoencoder"}  # takes zeros and ones, and makes them if asked
FOUND = classes_declaring("command", "sketchlearn.estimators")
ESTIMATORS = [
    *[cls() for command, cls in FOUND.items() if command not in OWN],
    CompressivePCA(n_components=1, sketch_size=3, standardize=True),
    CompressiveRidge(sketch_size=40, fit_intercept=False),
    CompressiveAutoencoder(binarize=0.0),
    CompressiveAutoencoder(2, binarize=0.0, sketch_size=3, decoder="pca"),
]


@pytest.mark.filterwarnings("ignore:the sketch saw")  # a size that is too small
@pytest.mark.filterwarnings("ignore:.*have no room in this sketch")
@parametrize_with_checks(ESTIMATORS)
def test_estimator_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)
