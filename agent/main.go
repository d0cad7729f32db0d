// Command agent runs beside one or more ComfyUI servers on a GPU machine and makes
// them instances of a hub's fleet; package internal/agent says how.
//
//	agent run --join hub.example.com:7946 --comfyui http://127.0.0.1:8188
//	agent simulate --count 3 --port 3188
package main

import "github.com/comfyhub/comfyhub/internal/agent"

func main() { agent.Main() }
