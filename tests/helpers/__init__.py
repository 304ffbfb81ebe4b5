"""What several tests share: models, rows with known answers, worker processes."""
