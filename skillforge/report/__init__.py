"""What people read: tables for terminals."""
