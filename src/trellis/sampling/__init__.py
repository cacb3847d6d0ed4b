"""How states and actions are collected: single path (Sec. 5.1) and vine (Sec. 5.2)."""
