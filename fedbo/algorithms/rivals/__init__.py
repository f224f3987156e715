"""Methods of other papers that are compared with."""
