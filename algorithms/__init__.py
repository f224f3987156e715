"""fedbo.algorithms"""
