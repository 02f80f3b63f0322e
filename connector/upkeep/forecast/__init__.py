"""What a policy of retention or storage would cost."""
