package files

import "github.com/comfyhub/comfyhub/internal/aiohttp"

// query holds the first value of each parameter.
type query map[string]string

// parseQuery reads a query as ComfyUI does.
func parseQuery(raw string) query {
	q := query{}
	for name, values := range aiohttp.ParseQuery(raw) {
		q[name] = values[0]
	}
	return q
}
