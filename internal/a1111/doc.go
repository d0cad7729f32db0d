// Package a1111 lets servers of A1111's API (Stable Diffusion web UI, Forge, SD.Next) run
// jobs of the fleet. A job for one is a graph like any other: one output node holds the
// request as A1111 takes it, and links to nodes that name the checkpoint, the LoRAs and the
// pictures, so that the hub sends it only where these are and carries the pictures there.
package a1111
