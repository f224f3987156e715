"""What is optimised: federations of private objectives, their data sets, and the box that they live in."""
