//! Sockets as a door. The front doors and links open no socket but here.
