"""Records to look at: tables for the terminal, figures, and one page that holds everything."""
