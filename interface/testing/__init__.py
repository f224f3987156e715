"""What tests of a platform of this kind need: random whole studies, the laws that their tables obey, and their promises."""
