"""The data sets of the tuning tasks."""

from __future__ import annotations

from fedbo.objectives.datasets.inventory import DataFile, DataSet

# None of these addresses could be reached from where this was written. A file from elsewhere with the sha256 is as good.
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

DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
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
    )
}
