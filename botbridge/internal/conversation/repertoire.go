package conversation

import "github.com/comfyhub/comfyhub/botbridge/internal/workflow"

// repertoire is the commands that make pictures, and what each is used for.
type repertoire struct {
	list   []*workflow.Command // in the order of /help
	byName map[string]*workflow.Command
	// plain is for plain words, edit for a picture with plain words, upscale and vary are
	// behind the buttons; "" for none.
	plain, edit, upscale, vary string
}

func newRepertoire(o Options) *repertoire {
	rep := &repertoire{list: o.Commands, byName: map[string]*workflow.Command{}, plain: o.Default, edit: o.Edit, upscale: o.Upscale, vary: o.Vary}
	for _, c := range o.Commands {
		rep.byName[c.Name] = c
	}
	return rep
}
