"""Fitted: strategies that make the segments of one block fit a limit, each with a reason for every segment."""
