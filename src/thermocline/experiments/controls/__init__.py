"""What reviewers of [masarczyk2025softmax] asked for, and its tables do not show."""
