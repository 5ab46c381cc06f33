"""Matrix capsules with EM routing, document 004 (Hinton, Sabour and Frosst 2018)."""
