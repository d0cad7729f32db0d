package agent

import (
	"errors"
	"fmt"
	"os"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// facade presents a server of A1111's API as a ComfyUI server, inside the agent.
type facade struct {
	*a1111.Instance

	// dir is for the files of its jobs.
	dir string
}

// open makes the instance of a server.
func (a *agent) open(t target) (*instance, error) {
	o, address := comfyui.Options{UserAgent: "ComfyHub-Agent/" + a.version, Dial: a.network.Dial}, t.url
	i := &instance{target: t}
	if t.a1111 {
		var err error
		if i.facade, err = a.present(t); err != nil {
			return nil, fmt.Errorf("--a1111: %w", err)
		}
		o.Dial, address = i.facade.Dial, "http://a1111"
	}
	var err error
	if i.client, err = comfyui.NewClient(address, o); err != nil {
		return nil, fmt.Errorf("--comfyui: %w", err)
	}
	i.handler = i.client.Proxy()
	return i, nil
}

// present begins to look for a server of A1111's API.
func (a *agent) present(t target) (*facade, error) {
	dir, err := os.MkdirTemp("", "comfyhub-a1111-")
	if err != nil {
		return nil, err
	}
	found, err := a1111.Open(t.url, a1111.Options{Dir: dir, Logger: a.log.With("instance", t.name)})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &facade{found, dir}, nil
}

// close ends what the agent has of an instance.
func (i *instance) close() {
	i.client.Close()
	if i.facade != nil {
		i.facade.Close()
		_ = os.RemoveAll(i.facade.dir) // the system's folder for such things is emptied at times
	}
}
