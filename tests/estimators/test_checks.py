"""Every estimator passes all of scikit-learn's own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from sketchlearn import CompressivePCA, CompressiveRidge

ESTIMATORS = [
    CompressivePCA(),
    CompressivePCA(n_components=1, sketch_size=3, standardize=True),
    CompressiveRidge(),
    CompressiveRidge(sketch_size=40, fit_intercept=False),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator_keeps_the_scikit_learn_contract(estimator, check):
    check(estimator)
