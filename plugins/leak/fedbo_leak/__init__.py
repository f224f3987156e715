"""What the messages of a study betray about the observations behind them, measured by attacks."""
