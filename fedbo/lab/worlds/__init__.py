"""Random surroundings of studies, and how a failing study is made smaller."""
