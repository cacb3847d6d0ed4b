"""One file a figure or table: its sweep as data, its run, its drawing from what the run wrote."""
