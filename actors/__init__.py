"""fedbo.actors"""
