BEST: dict[str, dict[str, float]] = {"lcbench": {}, "rbv2_xgboost": {}}
