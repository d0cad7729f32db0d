// Command caddy is Caddy with its standard modules and ComfyHub.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/comfyhub/comfyhub/caddymodule"
)

func main() {
	caddycmd.Main()
}
