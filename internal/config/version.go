package config

// Version is the hub's release. Every answer carries it in X-ComfyHub.
const Version = "0.1.0"

// UserAgent is how a hub identifies itself to instances.
const UserAgent = "ComfyHub/" + Version
