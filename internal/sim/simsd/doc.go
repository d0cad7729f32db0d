// Package simsd plays a server of A1111's API (Stable Diffusion web UI, started with --api):
// its routes below /sdapi/v1, the one lock under which it generates, its progress, its
// interruptions and its errors. It paints pictures instead of sampling them.
package simsd
