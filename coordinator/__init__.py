"""fedbo.coordinator"""
