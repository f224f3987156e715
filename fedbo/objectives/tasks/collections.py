"""The collections of tuning tasks by name: their data sets in the publisher's order, and the development part.

The parts belong to version 1 and never change. Development has the data sets on which defaults of this package were chosen (six
of `lcbench`), and others by a draw; all others are held out.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedbo.objectives.base import Part
from fedbo.objectives.tasks.complete_tables import Grid
from fedbo.objectives.tasks.scenarios import Scenario


@dataclass(frozen=True)
class Collection:
    """The data sets of a collection, those for development among them, and where their values come from."""

    data_sets: tuple[str, ...]
    development: tuple[str, ...]
    source: Scenario | Grid

    def part(self, name: Part) -> tuple[str, ...]:
        """Return the data sets of a part, in the publisher's order."""
        if name == "all":
            return self.data_sets
        return tuple(each for each in self.data_sets if (each in self.development) == (name == "development"))


LCBENCH = Collection(
    data_sets=tuple(
        (
            "3945 7593 34539 126025 126026 126029 146212 167104 167149 167152 167161 167168 167181 167184 167185 167190 "
            "167200 167201 168329 168330 168331 168335 168868 168908 168910 189354 189862 189865 189866 189873 189905 "
            "189906 189908 189909"
        ).split()
    ),
    development=tuple(
        ("3945 7593 126026 167161 167168 167190 167201 168329 168330 168908 189865 189906 189908 189909").split()
    ),
    source=Scenario(
        name="lcbench",
        categories=("OpenML_task_id",),
        numbers=("epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout"),
        fidelities=("epoch",),
        outputs=(
            "time",
            "val_accuracy",
            "val_cross_entropy",
            "val_balanced_accuracy",
            "test_cross_entropy",
            "test_balanced_accuracy",
        ),
        seconds="time",
    ),
)

XGBOOST = Collection(
    data_sets=tuple(
        (
            "16 40923 41143 470 1487 40499 40966 41164 1497 40975 1461 41278 11 54 300 40984 31 1067 1590 40983 41163 "
            "41165 182 1220 41159 41169 42 188 1457 1480 6332 181 1479 40670 40536 41138 41166 6 14 29 458 1056 1462 1494 "
            "40701 12 1493 44 307 334 40982 41142 38 1050 469 23381 41157 15 4541 23 4134 40927 40981 41156 3 1049 40900 "
            "1063 23512 40979 1040 1068 41161 22 1489 41027 24 4135 23517 1053 1468 312 377 1515 18 1476 1510 41162 28 "
            "375 1464 40685 40996 41146 41216 40668 41212 32 60 4538 40496 41150 37 46 554 1475 1485 1501 1111 4534 41168 "
            "151 4154 40978 40994 50 1478 1486 40498"
        ).split()
    ),
    development=tuple(
        (
            "12 24 42 54 182 300 307 375 458 469 470 1049 1067 1464 1468 1478 1489 1493 1497 4135 4154 4541 23512 23517 "
            "40498 40900 40923 40966 40978 40982 40983 40984 40994 40996 41150 41156 41159 41163 41168"
        ).split()
    ),
    source=Scenario(
        name="rbv2_xgboost",
        categories=("task_id", "booster", "num.impute.selected.cpo"),
        numbers=(
            "nrounds",
            "eta",
            "gamma",
            "lambda",
            "alpha",
            "subsample",
            "max_depth",
            "min_child_weight",
            "colsample_bytree",
            "colsample_bylevel",
            "rate_drop",
            "skip_drop",
            "trainsize",
            "repl",
        ),
        fidelities=("trainsize", "repl"),
        outputs=("acc", "bac", "auc", "brier", "f1", "logloss", "timetrain", "timepredict", "memory"),
        seconds="timetrain",
    ),
)

_RATES = (
    1e-5,
    3.5938137e-5,
    1.2915497e-4,
    4.641589e-4,
    1.6681006e-3,
    5.9948424e-3,
    2.1544347e-2,
    7.742637e-2,
    2.7825594e-1,
    1.0,
)
_DECAYS = (
    1e-8,
    7.742637e-8,
    5.994842e-7,
    4.641589e-6,
    3.5938137e-5,
    2.7825593e-4,
    2.1544348e-3,
    1.6681006e-2,
    1.2915497e-1,
    1.0,
)
MLP = Collection(
    data_sets=("car", "phoneme", "vehicle", "australian", "kc1", "segment", "blood_transfusion", "credit_g"),
    development=("phoneme", "car", "kc1"),
    source=Grid(
        name="hpobench",
        choices={
            "alpha": _DECAYS,
            "batch_size": (4, 6, 10, 16, 25, 40, 64, 101, 161, 256),
            "depth": (1, 2, 3),
            "learning_rate_init": _RATES,
            "width": (16, 25, 40, 64, 101, 161, 256, 406, 645, 1024),
        },
        quantity="val_acc",
        files={
            "car": "6c348ed056869f8dcc991b498f758e043435eb9ece5b9872940a365fc7940819",
            "phoneme": "2e8b9cb0a2726968dd185a4824f14c288c5625a281438550b0d4a46ba2549302",
            "vehicle": "12cf1793f7860457bf3da149aa3a5b69c9c8e2872181f44162e9858590f35992",
            "australian": "9e218898ba8a937f405a25c7b333342b5152bd14ad173218aeae8f2334de1b91",
            "kc1": "c682823ca58c308f2c0ac64430dda6941bbccc6a55c6abccdacbd62a811bb3d9",
            "segment": "a6db9d0fbf921a1cda604c376282465f683c8c7a6467eff12aa73260f62a83b5",
            "blood_transfusion": "47596acae26fca5803ddb049b02a8dec0c9d999f5618a67f3fe3bc0c24dfad4c",
            "credit_g": "97cf95dbead6c11004469e3bc3ee7396ce29b088128b6d3a031d4a9d0318494d",
        },
    ),
)

_UNITS = (16, 32, 64, 128, 256, 512)
FCNET = Collection(
    data_sets=("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization"),
    development=("parkinsons_telemonitoring", "protein_structure"),
    source=Grid(
        name="hpolib",
        choices={
            "activation_fn_1": ("relu", "tanh"),
            "activation_fn_2": ("relu", "tanh"),
            "batch_size": (8, 16, 32, 64),
            "dropout_1": (0.0, 0.3, 0.6),
            "dropout_2": (0.0, 0.3, 0.6),
            "init_lr": (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
            "lr_schedule": ("cosine", "const"),
            "n_units_1": _UNITS,
            "n_units_2": _UNITS,
        },
        quantity="val_loss",
        logarithm=True,
        files={
            "naval_propulsion": "4d10de47056702a57cf8c0cef19088c1ce830a8eba9175ea5983aa5785256fe4",
            "parkinsons_telemonitoring": "7299fbec18a74f27f3af5355b633cf9854f34ca0569a4fd85fa13d470e722b9d",
            "protein_structure": "583e6b45d18d1cd38dc2d823f3567724d92e451694fe82c5c89f80790a5ec620",
            "slice_localization": "9b454266def7d64d38138def520c39017513e748c0ba73be51e9925000332ff1",
        },
    ),
)

_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NAS = Collection(
    data_sets=("cifar10", "cifar100", "imagenet"),
    development=(),
    source=Grid(
        name="nasbench201",
        choices={f"Op{place}": _OPERATIONS for place in range(6)},
        quantity="val_acc",
        files={
            "cifar10": "2f6f8dcb4c6c8d12e33a8202cec38bcef7614ae04bd233c81e3726e4d20eba11",
            "cifar100": "a038736ae0f19bf169df58632f3d2941102270818931a0034f280eb52b8893b2",
            "imagenet": "59ac8d52a62a66d3df0fab19f7569d71fb2a1aa246eac811d56d550143a970b8",
        },
    ),
)
