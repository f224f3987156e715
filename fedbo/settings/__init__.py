"""Settings: ranges declared as marks on fields, one check that reads them, and its errors."""
