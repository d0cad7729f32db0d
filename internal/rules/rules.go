// Package rules decides what may run: which node classes and models a job may name, and how
// large, long and many its pictures may be. It reads what servers will do ([Work]), in
// ComfyUI's dialect and A1111's, and judges that in one place. It knows no users.
package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Rules are those of a tenant. A pattern may contain "*" for any text. What is empty forbids
// nothing.
type Rules struct {
	// DenyClasses are patterns of node classes that may not be in a prompt; with AllowClasses,
	// no others may.
	DenyClasses, AllowClasses []string
	// DenyModels and AllowModels are the same for files of models, by path or name, whatever
	// the case of their letters.
	DenyModels, AllowModels []string
	// Max are the largest values by what they bound: see [Bounds].
	Max map[string]float64
}

// Empty reports whether nothing is forbidden.
func (r Rules) Empty() bool {
	return len(r.DenyClasses)+len(r.AllowClasses)+len(r.DenyModels)+len(r.AllowModels)+len(r.Max) == 0
}

// Judge returns what a job may not do, in the order of its work: of each place, the first thing
// by each rule.
func (r Rules) Judge(w Work) []catalog.Objection {
	var objections []catalog.Objection
	for _, c := range w {
		o := r.judge(c)
		if o.Kind == "" {
			continue
		}
		o.Node, o.Input, o.Within = c.Node, c.Input, c.Within
		if !slices.ContainsFunc(objections[max(0, len(objections)-maxPlaces):], func(before catalog.Objection) bool {
			return before.Rule == o.Rule && before.Node == o.Node && before.Input == o.Input && slices.Equal(before.Within, o.Within)
		}) {
			objections = append(objections, o)
		}
	}
	return objections
}

// maxPlaces bounds how far back an objection about the same place is looked for.
const maxPlaces = 16

// judge says what is wrong with a claim; nothing has no kind.
func (r Rules) judge(c Claim) catalog.Objection {
	switch c.About {
	case aboutClass:
		if !permits([]string{c.Name}, r.DenyClasses, r.AllowClasses) {
			return catalog.Objection{Kind: catalog.NotValid, Rule: aboutClass, Reason: "you may not use nodes of the class " + c.Name}
		}
	case aboutMember:
		return catalog.Objection{Kind: catalog.NotAccepted, Rule: aboutMember, Reason: c.Unknown}
	case aboutModel:
		return r.model(c)
	default:
		return r.bound(c)
	}
	return catalog.Objection{}
}

// model judges a claim about a model.
func (r Rules) model(c Claim) catalog.Objection {
	if len(r.DenyModels)+len(r.AllowModels) == 0 {
		return catalog.Objection{}
	}
	o := catalog.Objection{Kind: catalog.NotOffered, Rule: aboutModel, Value: pyjson.String(c.Name), Reason: "you may not use the model " + c.Name}
	switch {
	case c.Unknown != "":
		return catalog.Objection{Kind: catalog.NotAccepted, Rule: aboutModel, Reason: c.Unknown}
	case c.Doubtful:
		if deniesFile(r.DenyModels, c.Name) {
			return o
		}
	case !permitsFile(r, c.Name, c.Files):
		return o
	}
	return catalog.Objection{}
}

// bound judges a claim about a number.
func (r Rules) bound(c Claim) catalog.Objection {
	most, bounded := r.Max[c.About]
	switch {
	case !bounded:
	case c.Unknown != "":
		return catalog.Objection{
			Kind: catalog.NotAccepted, Rule: "max " + c.About,
			Reason: fmt.Sprintf("%s, because it may be %v at most", c.Unknown, most),
		}
	case c.Value > most:
		o := catalog.Objection{
			Kind: catalog.TooLarge, Rule: "max " + c.About, Most: most,
			Reason: fmt.Sprintf("%v is more than you may use: %v at most", c.Value, most),
		}
		if !math.IsInf(c.Value, 0) { // for which JSON has no number
			o.Value = pyjson.Number(strconv.FormatFloat(c.Value, 'f', -1, 64))
		}
		return o
	}
	return catalog.Objection{}
}
