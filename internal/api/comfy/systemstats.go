package comfy

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getSystemStats answers GET /system_stats: the primary instance's system,
// with the version that the whole fleet can keep, and the devices of all.
func (s surveys) getSystemStats(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	var system, oldest *pyjson.Object
	devices := pyjson.Array{}
	answers, _ := s.askAll(r.Context(), "/system_stats", nil)
	for _, answer := range answers {
		o, _ := answer.(*pyjson.Object)
		if o == nil {
			continue
		}
		own := o.Object("system")
		if system == nil {
			system = own
		}
		if oldest == nil || versionOf(own).Compare(versionOf(oldest)) < 0 {
			oldest = own
		}
		devices = append(devices, o.Array("devices")...)
	}
	if system == nil {
		system = pyjson.NewObject(
			pyjson.Member{Key: "os", Value: pyjson.String("posix")},
			pyjson.Member{Key: "ram_total", Value: pyjson.Int(0)},
			pyjson.Member{Key: "ram_free", Value: pyjson.Int(0)},
			pyjson.Member{Key: "comfyui_version", Value: pyjson.Null{}},
			pyjson.Member{Key: "python_version", Value: pyjson.String("")},
			pyjson.Member{Key: "pytorch_version", Value: pyjson.String("")},
			pyjson.Member{Key: "embedded_python", Value: pyjson.Bool(false)},
			pyjson.Member{Key: "argv", Value: pyjson.Array{}},
		)
	}
	if version := s.hub().Instances.Version(); version.Known() {
		system.Set("comfyui_version", pyjson.String(version.String()))
	}
	// It belongs to the version: a web UI that fits the oldest server must not
	// be called outdated because another one is newer.
	if v, told := oldest.Get("required_frontend_version"); told && system.Has("required_frontend_version") {
		system.Set("required_frontend_version", v)
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "system", Value: system},
		pyjson.Member{Key: "devices", Value: devices},
	))
}

// versionOf is the version that a server tells in its system.
func versionOf(system *pyjson.Object) comfyui.Version {
	return comfyui.ParseVersion(system.String("comfyui_version"))
}
