"""The functions of a `Result` that `fedbo.analysis` offers."""

from fedbo.analysis.averages import curves as curves
from fedbo.analysis.comparison import compare as compare
from fedbo.analysis.described import failures as failures
from fedbo.analysis.described import refusals as refusals
from fedbo.analysis.disruptions import trouble as trouble
from fedbo.analysis.disruptions import trouble_by_agent as trouble_by_agent
from fedbo.analysis.finished_run import configurations as configurations
from fedbo.analysis.finished_run import own_metric as own_metric
from fedbo.analysis.regret import regret_curves as regret_curves
from fedbo.analysis.regret import regret_summary as regret_summary
from fedbo.analysis.regret import regret_traces as regret_traces
from fedbo.analysis.timeline_bars import placements as placements
