"""What every schedule has: hosts with bookies, the nemesis, and what is known of each bookie."""
