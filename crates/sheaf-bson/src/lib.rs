//! Raw BSON values, their one comparison order, dotted paths, KeyString.
