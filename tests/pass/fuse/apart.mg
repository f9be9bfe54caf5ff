; What must not be merged: rows of other sizes, and a path between two members that leaves the group (the matmul).
; test: run fuse..fuse
; test: expect f row 0, map 2
; test: expect g row 0, map 2
; test: expect h row 0, map 1

config fuse=on
dim n = 4
dim m = 6
dim d = 8
dim e = 8
func f fwd
  in %1 : f32[n d]
  in %2 : f32[m d]
  %3 : f32[n d] = exp %1
  %4 : f32[m d] = exp %2
  out %3 %4
end
func g fwd
  in %1 : f32[n d]
  in %2 : f32[d e]
  %3 : f32[n d] = exp %1
  %4 : f32[n e] = matmul %3 %2 {sum=[d]}
  %6 : f32[n d] = rename %4 {dim=e to=d}
  %5 : f32[n d] = add %3 %6
  out %5
end
func h fwd
  in %1 : f32[n d]
  %2 : f32[n d] = exp %1
  %3 : f32[n d] = tanh %2
  %4 : f32[n d] = mul %2 %3
  out %4
end
