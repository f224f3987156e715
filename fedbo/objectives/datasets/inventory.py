"""The inventory of public data sets: their files, sizes, sha256, addresses, licences, and the papers to cite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedbo.objectives.datasets import hapt


@dataclass(frozen=True, slots=True)
class MadeFrom:
    """The recipe of a file that is not published.

    archive: the published archive. A user without a network may put it, under this name, into the file's folder.
    make: `make(archive, target)` writes the file, or raises ValueError for another archive.
    digest: `digest(path)` is a sha256 over the contents, since the same contents may be packed in other bytes.
    """

    archive: str
    make: Callable[[Path, Path], None]
    digest: Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set.

    name: its name.
    size: its size in bytes.
    sha256: its sha256; of a `gzipped` file that of its content, which may be packed in other bytes.
    address: its public address.
    member: the member of a zip or tar at the address.
    made_from: the recipe of a file without a publisher.
    by_hand: how to make the file from the published data; such a file is never fetched.
    """

    name: str
    size: int
    sha256: str
    address: str
    member: str | None = None
    made_from: MadeFrom | None = None
    gzipped: bool = False
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A published set of files with its licence and the paper to cite."""

    name: str
    files: tuple[DataFile, ...]
    licence: str
    citation: str


# None of these addresses could be reached from where this was written. A file from elsewhere with the sha256 is as good.
UCI = "https://archive.ics.uci.edu"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"  # PyTorch's mirror of http://yann.lecun.com/exdb/mnist
COVSTRETCH = "https://github.com/wwiecek/covstretch"
PAI = "https://raw.githubusercontent.com/alibaba/clusterdata/master/cluster-trace-gpu-v2020/mini-batch-time"
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"
YAHPO = "https://raw.githubusercontent.com/slds-lmu/yahpo_data/efdab9072f63bd680396cd4b78b927c4a0caaad3"
YAHPO_PAPER = "Pfisterer, Schneider, Moosbauer, Binder, Bischl: YAHPO Gym. AutoML-Conf 2022"
BENCHMARK_HUB = "https://raw.githubusercontent.com/AutoTuningAssociation/benchmark_hub/8eeb99e7179e6838af95d392ac6c60cebfd8c434"
KERNEL_FILES = {
    ("convolution", "currently_unused/cachefiles/KernelTuner%20data/convolution"): (
        ("RTX_2080_Ti.json.gz", 784_621, "cbbbbd146a7265ca017c682916cfa4460af77960c13604890ff61cf3c2017019"),
        ("RTX_3060_laptop.json.gz", 685_342, "7e19e10c43a71916bd5de063047d2fd0c50752fcb9af7cf5257baa262acd7c35"),
        ("RTX_3090.json.gz", 650_984, "6d6262dacd8cdf1d247529160984b2c932e8b0174c3603c7f6544052a1f34488"),
        ("RTX_Titan.json.gz", 827_658, "28adba7610a20117c72fc713dc22b6134c5f315fbe5e2412b5c020186359b064"),
    ),
    ("pnpoly", "currently_unused/cachefiles/KernelTuner%20data/pnpoly"): (
        ("RTX_2080_Ti.json.gz", 402_358, "b3d3632775fd946c64a15bfefc743a1f6c9b2795cf8ca4a1f14bd083cdc4103a"),
        ("RTX_3060_laptop.json.gz", 480_307, "16d8ca8a7ebbc52d00da8696a81c566960ef412969442263f327aef0b6f1b7d5"),
        ("RTX_3090.json.gz", 513_918, "d6f238c36dc83dde6b470f9f6488c21140ce233d345ef4fc4e0cd9763b4d3759"),
        ("RTX_Titan.json.gz", 494_581, "ff750b82c6042274d6c3587544e82d96f3f35d37b63ee606b34c9dad16b34f77"),
    ),
    ("convolution_milo", "cachefiles/convolution_milo"): (
        ("A100.json.gz", 857_930, "de449bddefb42721a9c92d63b0984caeb04cc48519d58135a487e832f8196b9d"),
        ("A4000.json.gz", 993_833, "fd773e882875902173ed50a7f9db6a28260ea25b87cf26211a7c627b94c0b8e8"),
        ("A6000.json.gz", 1_082_942, "e0992a3baa24e0280f1706319145d473933157ef554df094a4357e435cb0de53"),
        ("MI250X.json.gz", 1_413_525, "06d8da1397be0e0cfcccf938968ebf0fa709b53f9314bf091d2b9eb5e2cb1b69"),
        ("W6600.json.gz", 1_404_207, "de31e4d1b2f85ee4447123e237e69263667046a8f9b95b3440074aa5412fc6ff"),
        ("W7800.json.gz", 1_552_430, "fa1e0d71a9e9b37ba584877d01c3aaab589827ef6a749e404c887aa07f0ec0bf"),
    ),
    ("dedispersion_milo", "cachefiles/dedispersion_milo"): (
        ("A100.json.gz", 3_116_539, "156253bd3ba2d956496bae6cb57a8601883b9820b50ad5b1b90f02ac4f8ce5fd"),
        ("A4000.json.gz", 3_262_179, "657e9de1ba7a029324c71a62d13e1dd06a8ae5311af0255c15a086d0bbad6044"),
        ("A6000.json.gz", 3_325_598, "5a9c1e1bc9d6c0c5d8997fa4ea93517e1e26b5ce4449e1f81bc7bed793f76d1b"),
        ("MI250X.json.gz", 3_437_661, "bb0120691b702899148ec52c1c73b5168f5409bc3e98cc49873e2f0f8da18136"),
        ("W6600.json.gz", 3_309_942, "5d10249dbf24d1b60925d03013a7f1da9200a35578a140490dd61d5b4444f64f"),
        ("W7800.json.gz", 3_756_761, "50da9d5e88388d9d5d777654530c8416f9b928ca9bb6976d7df2481a1fc4bd8e"),
    ),
}
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
            name="covid",
            files=(
                DataFile(
                    name="population_by_age_2020.csv",
                    size=25_669,
                    sha256="f9287d571dc3a2dd3dac10632b3b25d737f70a097e9eecedd27669d949b6b868",
                    address=COVSTRETCH,
                    by_hand="a table un_code, location, persons in nine age groups of ten years, of its default_inputs.Rdata",
                ),
                DataFile(
                    name="polymod_contact_matrix.csv",
                    size=1_730,
                    sha256="a179fa3b98d94386f8c26903b060a565e14991c451a792c0cd55af44016ad0e8",
                    address=COVSTRETCH,
                    by_hand="the contact matrix of its default_inputs.Rdata, with a row and a column of age groups",
                ),
                DataFile(
                    name="nab_efficacy_curve.csv",
                    size=3_110,
                    sha256="8daa4b816ba846fde0422b6b5066158bc2aecedc2b5586edd5f00c223d3c02d8",
                    address="https://raw.githubusercontent.com/wwiecek/covstretch/main/data/curve.csv",
                ),
            ),
            licence="none stated for the repository; populations CC BY 3.0 IGO, contacts CC BY 4.0",
            citation="Wiecek, Ahuja, Chaudhuri, Kremer, Gomes, Snyder, Tabarrok, Tan: Testing fractional doses of COVID-19 "
            "vaccines. PNAS 119(8), 2022; United Nations: World Population Prospects 2019; Mossong et al.: Social contacts and "
            "mixing patterns. PLoS Medicine 5(3), 2008; Khoury et al.: Neutralizing antibody levels. Nature Medicine 27, 2021",
        ),
        DataSet(
            name="uci_har_meta",
            files=UCI_HAR_FILES,
            licence="to be acknowledged; distributed as is; commercial use prohibited",
            citation="Anguita, Ghio, Oneto, Parra, Reyes-Ortiz: A public domain dataset for human activity recognition "
            "using smartphones. ESANN 2013",
        ),
        DataSet(
            name="pai",
            files=tuple(
                DataFile(name=f"job_{number}_norm.csv", size=size, sha256=sha256, address=f"{PAI}/job_{number}_norm.csv")
                for number, size, sha256 in (
                    (1, 54_814, "6f555e44ababa68c25659f911eb28fa7658f7ff0b3c08161a57b3bce0bf0d2dd"),
                    (2, 43_452, "c1945786e809ec0c204aa3f0e30d7dd3111234ef873707cb8304bdd290d433b2"),
                    (3, 45_109, "47057a62829a1fbea6c90e43aeba53d4a9c2804c38ce31fd618d2426ef2b530b"),
                    (4, 425_467, "eccd5b23e4480e585082ba4affecbcc240150a9dcfc69b237d4dcb28ad146bc6"),
                )
            ),
            licence="CC BY 4.0",
            citation="Weng et al.: MLaaS in the wild: workload analysis and scheduling in large-scale heterogeneous GPU "
            "clusters. NSDI 2022; Xiao et al.: AntMan: dynamic scaling on GPU clusters for deep learning. OSDI 2020",
        ),
        DataSet(
            name="yahpo/lcbench",
            files=tuple(
                DataFile(name=name, size=size, sha256=sha256, address=f"{YAHPO}/lcbench/{name}")
                for name, size, sha256 in (
                    ("model.onnx", 2_153_124, "b45c0d85ae39abf8820c8bea5ac82f415763afcbaf3b725e36af452b09cb6dcd"),
                    ("config_space.json", 2_151, "4d1c78a91429b4a37628e13f286cf1abe15f778a09722a4c01714f2d72a8200d"),
                    ("encoding.json", 507, "d8af928f412bbeb07e58ecd69877fcab35fbc595333d1c1c3f76120d2f2508da"),
                )
            ),
            licence="Apache-2.0",
            citation=YAHPO_PAPER + "; Zimmer, Lindauer, Hutter: Auto-PyTorch Tabular. TPAMI 43(9), 2021",
        ),
        DataSet(
            name="yahpo/rbv2_xgboost",
            files=tuple(
                DataFile(name=name, size=size, sha256=sha256, address=f"{YAHPO}/rbv2_xgboost/{name}")
                for name, size, sha256 in (
                    ("model.onnx", 3_335_828, "85125b6d97f553d10cd50f9e632e1a3f1ad44bcb00300dd2880d70dfd043d9f3"),
                    ("config_space.json", 4_955, "acf4485d314d86801f61b615d64ffea7859c414c363da9e7f943621468ebbda4"),
                    ("encoding.json", 1_604, "0bd3cf9a4c9459a3148adf740f20b347fd11a6714f89348f41467a8f1206172a"),
                )
            ),
            licence="Apache-2.0",
            citation=YAHPO_PAPER
            + "; Binder, Pfisterer, Bischl: Collecting empirical data about hyperparameters. ICML AutoML workshop 2020",
        ),
        *(
            DataSet(
                name=f"kernels/{kernel}",
                files=tuple(
                    DataFile(name=name, size=size, sha256=sha256, address=f"{BENCHMARK_HUB}/{folder}/{name}")
                    for name, size, sha256 in files
                ),
                licence="MIT",
                citation="Tørring, van Werkhoven, Petrovič, Willemsen, Filipovič, Elster: Towards a benchmarking suite for "
                "kernel tuners. iWAPT 2023; the tables: doi:10.5281/zenodo.15364124",
            )
            for (kernel, folder), files in KERNEL_FILES.items()
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
