"""The data sets of the classifiers here."""

from __future__ import annotations

from fedbo.objectives.classifiers import hapt
from fedbo.objectives.datasets.inventory import DataFile, DataSet, MadeFrom

# None of these addresses could be reached from where this was written. A file from elsewhere with the sha256 is as good.
UCI = "https://archive.ics.uci.edu"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"  # PyTorch's mirror of http://yann.lecun.com/exdb/mnist
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"
UCI_HAR_FILES = tuple(
    DataFile(
        name.rpartition("/")[2],
        size,
        sha256,
        address=f"{UCI}/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
        member=f"UCI HAR Dataset/{name}",
    )
    for name, size, sha256 in (
        ("train/subject_train.txt", 20_152, "66e1e2fbe9b396fa5155f531dc3348c803f503be663e2318772d49947db9153a"),
        ("test/subject_test.txt", 7_934, "63b8c577f4a85431c06bd87f6384608c90a9f72f05c7956dd21255dc63515c07"),
        ("train/y_train.txt", 14_704, "415b3357e2e2d5e70a45c781947c6bdd80e0410a579d862eedcd6bbce3c694ef"),
        ("test/y_test.txt", 5_894, "2a94cb53ca46b956c1b2aebd4a09a72badd8a8e9ea9cdfe9f31b3306a08666bb"),
        ("features.txt", 15_785, "b384889885b1c8680ecf250e0e605b4c79536cdf09ce9f2fa7225a3c6773b5c7"),
        ("features_info.txt", 2_809, "5d7e7d1f204dcfba846043029ef7a15a07c2b3711ee0a122da031f5971b3b585"),
        ("activity_labels.txt", 80, "f6e6b292704438261f0283b2a82659ab0661447dc16520938bdf379ed1bf8de0"),
        ("README.txt", 4_453, "8a7182026076bd799ad53107dbadf1927a51fd8fd0124beaf122372f6a2db38c"),
    )
)

DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet(
            name="landmine",
            files=(
                DataFile(
                    name="LandmineData.mat",
                    size=1_085_456,
                    sha256="2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea",
                    address="http://www.ee.duke.edu/~lcarin/LandmineData.zip",
                    member="LandmineData.mat",
                ),
            ),
            licence="none stated",
            citation="Xue, Liao, Carin, Krishnapuram: Multi-task learning for classification with Dirichlet process "
            "priors. JMLR 8, 2007",
        ),
        DataSet(
            name="hapt",
            files=(
                DataFile(
                    name="hapt_raw_int16.npz",
                    size=9_536_454,  # as packed here: the sha256 is of the arrays
                    sha256="3cc48a8bfc32d5be76e823597c5dd73d1ad1da150ed6e8000099fd7a7c3f6abd",
                    address=f"{UCI}/static/public/341/"
                    "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
                    made_from=MadeFrom("hapt.zip", hapt.make, hapt.digest),
                ),
            ),
            licence="CC BY 4.0, says UCI; the authors ask to be cited and forbid commercial use of the sister set",
            citation="Reyes-Ortiz, Oneto, Sama, Parra, Anguita: Transition-aware human activity recognition using "
            "smartphones. Neurocomputing 171, 2016",
        ),
        DataSet(
            name="uci_har_meta",
            files=UCI_HAR_FILES,
            licence="to be acknowledged; distributed as is; commercial use prohibited",
            citation="Anguita, Ghio, Oneto, Parra, Reyes-Ortiz: A public domain dataset for human activity recognition "
            "using smartphones. ESANN 2013",
        ),
        DataSet(
            name="wisdm",
            files=(
                DataFile(
                    name="WISDM_ar_v1.1_transformed.arff",
                    size=1_197_772,
                    sha256="8cb3fbbad6398ac4b817cc7b98f387efa89ac24b26d1270a5e7a1049a8f9c31a",
                    address="https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz",
                    member="WISDM_ar_v1.1/WISDM_ar_v1.1_transformed.arff",
                ),
            ),
            licence="none stated; free for research with citation",
            citation="Kwapisz, Weiss, Moore: Activity recognition using cell phone accelerometers. SensorKDD 2010",
        ),
        DataSet(
            name="qmnist",
            files=(
                DataFile(
                    name="train-images-idx3-ubyte.gz",
                    size=9_912_422,
                    sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    address=f"{MNIST}/train-images-idx3-ubyte.gz",
                    gzipped=True,
                ),
                DataFile(
                    name="qmnist-train-labels-idx2-int.gz",
                    size=463_024,
                    sha256="2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
                    address=f"{QMNIST}/qmnist-train-labels-idx2-int.gz",
                ),
                DataFile(
                    name="t10k-images-idx3-ubyte.gz",
                    size=1_648_877,
                    sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    address=f"{MNIST}/t10k-images-idx3-ubyte.gz",
                    gzipped=True,
                ),
                DataFile(
                    name="qmnist-test-labels-idx2-int.gz",
                    size=526_800,
                    sha256="9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
                    address=f"{QMNIST}/qmnist-test-labels-idx2-int.gz",
                ),
            ),
            licence="labels BSD-style; images from NIST Special Database 19, a work of the US government",
            citation="Yadav, Bottou: Cold case: the lost MNIST digits. NeurIPS 2019; LeCun, Bottou, Bengio, Haffner: "
            "Gradient-based learning applied to document recognition. Proc. IEEE 86, 1998",
        ),
    )
}
