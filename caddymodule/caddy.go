// Package caddymodule makes the hub a Caddy module.
package caddymodule
