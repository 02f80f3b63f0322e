// hyperpb behind a C interface that Python's ctypes calls. It parses messages and builds no columns.
package main

// #include <stdint.h>
import "C"

import (
	"unsafe"

	"buf.build/go/hyperpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

type peer struct {
	data      []byte
	positions []int64
	message   *hyperpb.MessageType
	shared    *hyperpb.Shared
}

var peers = map[int64]*peer{}
var lastPeer int64

// Returns the number of a new peer, or 0 after an error. The caller keeps `data` and `positions`
// until the peer is closed. Each position is a start, shifted left by 32, and a length in bytes.
//
//export hyperpb_open
func hyperpb_open(
	definition *C.char, definitionBytes C.int64_t, root *C.char,
	data *C.char, dataBytes C.int64_t, positions *C.int64_t, count C.int64_t,
) C.int64_t {
	files := new(descriptorpb.FileDescriptorSet)
	if proto.Unmarshal(C.GoBytes(unsafe.Pointer(definition), C.int(definitionBytes)), files) != nil {
		return 0
	}
	message, err := hyperpb.CompileFileDescriptorSet(files, protoreflect.FullName(C.GoString(root)))
	if err != nil {
		return 0
	}
	opened := &peer{
		data:      unsafe.Slice((*byte)(unsafe.Pointer(data)), int(dataBytes)),
		positions: unsafe.Slice((*int64)(unsafe.Pointer(positions)), int(count)),
		message:   message,
		shared:    new(hyperpb.Shared),
	}
	opened.learn()
	lastPeer++
	peers[lastPeer] = opened
	return C.int64_t(lastPeer)
}

// Compiles the message again, for the fields that the first payloads have.
func (each *peer) learn() {
	profile := each.message.NewProfile()
	each.parse(min(len(each.positions), 1024), hyperpb.WithRecordProfile(profile, 1))
	each.message = each.message.Recompile(profile)
}

// Returns how many of the first `count` payloads were parsed.
func (each *peer) parse(count int, options ...hyperpb.UnmarshalOption) int {
	for row, position := range each.positions[:count] {
		start, length := position>>32, position&0xFFFFFFFF
		message := each.shared.NewMessage(each.message)
		err := message.Unmarshal(each.data[start:start+length], options...)
		// It is of one message, and keeps its memory for the next.
		each.shared.Free()
		if err != nil {
			return row
		}
	}
	return count
}

// Parses all payloads, and returns how many.
//
//export hyperpb_run
func hyperpb_run(number C.int64_t) C.int64_t {
	each := peers[int64(number)]
	return C.int64_t(each.parse(len(each.positions), hyperpb.WithAllowAlias(true)))
}

//export hyperpb_close
func hyperpb_close(number C.int64_t) {
	delete(peers, int64(number))
}

func main() {}
