package sim

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// simulatedRAM is the host memory in bytes that /system_stats reports.
const simulatedRAM = 64 << 30

func (p *process) getSystemStats(w http.ResponseWriter, r *http.Request) {
	used := p.memory.usage()
	reserved := max(0, used-baseUsage)
	system := dict("os", "posix", "ram_total", int64(simulatedRAM), "ram_free", int64(simulatedRAM)*3/4, "comfyui_version", p.cfg.Version)
	if p.feat.platformName {
		system.Set("os", pyjson.String("linux"))
	}
	frontend, templates := "1.27.10", "0.1.95"
	if p.feat.newCatalogue {
		frontend, templates = "1.48.7", "0.11.41"
	}
	set := func(key string, v any) { system.Set(key, value(v)) }
	set("required_frontend_version", frontend)
	set("installed_templates_version", templates)
	set("required_templates_version", templates)
	if p.feat.uuidPromptID {
		pack := func(name, version string) *pyjson.Object {
			return dict("name", name, "installed", version, "required", version)
		}
		set("comfy_package_versions", list(pack("comfyui-frontend-package", frontend), pack("comfyui-workflow-templates", templates),
			pack("comfyui-embedded-docs", "0.5.9"), pack("comfy-kitchen", "0.2.31"), pack("comfy-aimdo", "0.4.13")))
	}
	set("python_version", "3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]")
	set("pytorch_version", "2.8.0+cu128")
	set("embedded_python", false)
	set("argv", p.cfg.argv())
	if p.feat.uuidPromptID {
		set("deploy_environment", "local")
	}
	device := dict("name", "cuda:0 Simulated GPU : cudaMallocAsync", "type", "cuda", "index", 0,
		"vram_total", p.cfg.VRAM, "vram_free", max(0, p.cfg.VRAM-used), "torch_vram_total", reserved, "torch_vram_free", 0)
	answerJSON(w, http.StatusOK, dict("system", system, "devices", list(device)))
}
