//! Forms of listings that the toolkit in use does not print: lines of our own kernels as other versions print them.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kbt_sass::{Listing, parse};

fn read(text: &str) -> Listing {
    let listing = parse(text.as_bytes()).unwrap();
    assert_eq!(listing.problems, [], "{text}");
    listing
}

#[test]
fn maxwell_control_words_dual_issue_and_branches_to_a_control_word() {
    // nvdisasm 12.8 -c -hex on sm_52: the word of a pair's second half is on the next line.
    let listing = read(
        "	.target	sm_52
	.section	.text.nested,\"ax\",@progbits
.text.nested:
                                                                     /* 0x001fc000fda007f6 */
        /*0008*/                   MOV R1, c[0x0][0x20] ;            /* 0x4c98078000870001 */
        /*0010*/                   ISETP.LT.AND P0, PT, RZ, c[0x0][0x148], PT ;  /* 0x4b6303800527ff07 */
        /*0018*/         {    @!P0 MOV R4, RZ ;                      /* 0x5c9807800ff80004 */
                                                                     /* 0x001c4400fe0007fd */
        /*0028*/              @!P0 BRA `(.L_x_17)         }
                                                                     /* 0xe24000001708000f */
        /*0030*/         {         MOV R4, RZ ;                      /* 0x5c9807800ff70004 */
        /*0038*/                   S2R R8, SR_TID.X         }
                                                                     /* 0xf0c8000002170008 */
                                                                     /* 0x001fd801fec007ff */
.L_x_17:
        /*0048*/                   EXIT ;                            /* 0xe30000000007000f */
        /*0050*/                   BRA 0x40 ;                        /* 0xe2400fffff07000f */
",
    );
    let insns = &listing.functions[0].instructions;
    assert_eq!(insns.len(), 8);
    assert!(insns.iter().all(|i| i.control.is_some() && i.encoding.is_some()), "{insns:?}");
    assert_eq!((insns[0].control.unwrap().stall, insns[1].control.unwrap().stall), (6, 13));
    assert_eq!(insns[2].control.unwrap().stall, 0, "issued together with the branch");
    assert_eq!(insns[3].encoding, Some(0xe240_0000_1708_000f));
    assert_eq!(insns[3].guard.unwrap().to_string(), "@!P0");
    assert_eq!(insns[3].targets, [0x48]);
    assert_eq!(insns[7].targets, [0x48], "0x40 is the control word before it");
    assert_eq!(insns[5].text(), "S2R R8, SR_TID.X");
}

#[test]
fn scheduling_text_of_12_8_equals_the_encoding() {
    let line = |schedule: &str, high: &str| {
        let text = format!(
            "	code for sm_120\n		Function : k\n        /*0070*/  LDG.E R0, desc[UR6][R10.64]  {schedule};  \
             /* 0x000000060a007981 */\n{high}        /*0080*/  EXIT ?trans5;\n"
        );
        parse(text.as_bytes()).unwrap().functions.remove(0).instructions.remove(0)
    };
    let words = "&req={2} &rd=0x1 &wr=0x5 ?trans1";
    let both = line(words, "  /* 0x004362000c1e1900 */\n");
    let text_only = line(words, "");
    assert_eq!(both.operands(), "R0, desc[UR6][R10.64]");
    assert_eq!(both.control, text_only.control);
    let control = both.control.unwrap();
    assert_eq!((control.wait_mask, control.read_barrier, control.write_barrier), (4, Some(1), Some(5)));
}

#[test]
fn members_of_a_fatbin_may_repeat_names_and_carry_ptx() {
    let listing = read(
        "
Fatbin elf code:
================
arch = sm_80
code version = [1,8]
host = linux
compile_size = 64bit
compressed

	code for sm_80
		Function : k
	.headerflags	@\"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)\"
        /*0000*/                   EXIT ;    /* 0x000000000000794d */
                                             /* 0x000fea0003800000 */
		..........


Fatbin elf code:
================
arch = sm_90a

	code for sm_90a
		Function : k
	.headerflags	@\"EF_CUDA_ACCELERATORS EF_CUDA_SM90\"
        /*0000*/                   NOP ;     /* 0x0000000000007918 */
                                             /* 0x000fea0003800000 */
        /*0010*/                   EXIT ;    /* 0x000000000000794d */
                                             /* 0x000fea0003800000 */
		..........

Fatbin ptx code:
================
arch = sm_90
.version 9.0
.visible .entry k() {
  ret;
}
",
    );
    let shown: Vec<_> = listing
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.arch.unwrap().to_string(), f.member, f.instructions.len()))
        .collect();
    assert_eq!(shown, [("k", "sm_80".to_owned(), 0, 1), ("k", "sm_90a".to_owned(), 1, 2)]);
}

#[test]
fn header_flags_name_the_target_where_nothing_else_does() {
    for (flags, arch) in [
        ("EF_CUDA_SM70 EF_CUDA_PTX_SM(EF_CUDA_SM70)", "sm_70"),
        (
            "EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)",
            "sm_90",
        ),
        ("EF_CUDA_ACCELERATORS EF_CUDA_SM103 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM103)", "sm_103a"),
    ] {
        let listing = read(&format!("Function : k\n.headerflags @\"{flags}\"\n/*0000*/ EXIT ;\n"));
        assert_eq!(listing.functions[0].arch.unwrap().to_string(), arch);
    }
}

#[test]
fn labels_of_annotations_start_no_block_and_inline_chains_are_kept() {
    let listing = read(
        "	.target	sm_90a
	.section	.text.k,\"ax\",@progbits
	//## File \"/src/a b.cuh\", line 1 inlined at \"/src/k.cu\", line 2
	//## File \"/src/k.cu\", line 2 inlined at \"/src/k.cu\", line 6
	//## File \"/src/k.cu\", line 6
        /*ffd0*/                   STL [R1], R2   (*\"SpillRefill\"*);
.L_x_7:
        /*ffe0*/                   LDL R2, [R1]   (*\"SpillRefill\"*);
.L_x_8:
	//## File \"/src/k.cu\", line 7
        /*fff0*/               @P0 BRX R2 -0x30   (*\"BRANCH_TARGETS .L_x_8,.L_x_9\"*);
.L_x_9:
        /*10000*/                  EXIT ;
",
    );
    let function = &listing.functions[0];
    let starts: Vec<_> = kbt_sass::Graph::new(function).blocks.iter().map(|b| b.instructions.start).collect();
    assert_eq!(starts, [0, 2, 3]);
    assert_eq!(function.instructions[2].targets, [0xfff0, 0x10000]);
    let line = function.instructions[0].line.as_ref().unwrap();
    assert_eq!((&*line.file, line.line), ("/src/a b.cuh", 1));
    let outer: Vec<_> = line.inlined_at.iter().map(|(f, l)| (&**f, *l)).collect();
    assert_eq!(outer, [("/src/k.cu", 2), ("/src/k.cu", 6)]);
    assert_eq!(function.instructions[1].line, function.instructions[0].line);
    assert_eq!(function.instructions[3].line.as_ref().unwrap().line, 7);
}

#[test]
fn cuasm_prefixes_and_resource_usage_are_read() {
    let listing = read(
        "Function : k\r\n      [B------:R-:W0:-:S04]         /*0000*/ S2R R0, SR_TID.X ;\r\n      \
                        [B0-----:R-:W-:-:S05]         /*0010*/ EXIT ;\r\n",
    );
    let waits: Vec<_> = listing.instructions().map(|i| i.control.unwrap().wait_mask).collect();
    assert_eq!(waits, [0, 1]);
    let listing = read(
        "Resource usage:
 Common:
  GLOBAL:24 CONSTANT[4]:8
 Function k:
  REG:17 STACK:32 SHARED:0 LOCAL:0 CONSTANT[2]:28 CONSTANT[0]:544 TEXTURE:0 SURFACE:0 SAMPLER:0

	code for sm_90a
		Function : k
        /*0000*/                   EXIT ;
",
    );
    let resources = listing.functions[0].resources.unwrap();
    assert_eq!((resources.registers, resources.stack_bytes), (Some(17), Some(32)));
}

#[test]
fn an_entry_of_12_8_json_for_a_subroutine_belongs_to_its_function() {
    let insns = |opcode: &str| format!(r#"[{{"opcode":"{opcode}","operands":""}},{{"opcode":"EXIT"}}]"#);
    let entry = |name: &str, start: u64, opcode: &str| {
        format!(
            r#"{{"function-name":"{name}","start":{start},"length":32,"sass-instructions":{}}}"#,
            insns(opcode)
        )
    };
    let listing = read(&format!(
        r#"[{{"SM":{{"version":{{"major":9,"minor":0}}}}}},[{},{},{},{}]]"#,
        entry("a", 0, "NOP"),
        entry("$a$divide", 32, "MOV"),
        entry("$b", 0, "SEL"),
        entry("c", 0, "NOP"),
    ));
    let shown: Vec<_> = listing.functions.iter().map(|f| (f.name.as_str(), f.instructions.len())).collect();
    assert_eq!(shown, [("a", 4), ("$b", 2), ("c", 2)]);
    assert_eq!(listing.functions[0].subroutines, [("$a$divide".to_owned(), 32)]);
    assert_eq!(listing.functions[0].instructions[2].address, 32);
}

#[test]
fn where_sync_and_brk_go_is_known_from_the_regions_around_them() {
    let listing = read(
        "	code for sm_52
		Function : k
        /*0008*/                   PBK 0x70 ;
        /*0010*/                   SSY 0x58 ;
        /*0018*/              @!P0 SYNC ;
        /*0028*/                   MOV R1, R2 ;
        /*0030*/                   SYNC ;
        /*0038*/                   NOP ;
        /*0048*/                   NOP ;
        /*0050*/                   NOP ;
        /*0058*/               @P1 BRK ;
        /*0068*/                   BRA 0x58 ;
        /*0070*/                   EXIT ;
        /*0078*/                   BRA 0x78 ;
",
    );
    let function = &listing.functions[0];
    let targets: Vec<_> = function.instructions.iter().map(|i| i.targets.first().copied()).collect();
    assert_eq!((targets[2], targets[4], targets[8]), (Some(0x58), Some(0x58), Some(0x70)));
    let graph = kbt_sass::Graph::new(function);
    let starts: Vec<_> =
        graph.blocks.iter().map(|b| function.instructions[b.instructions.start].address).collect();
    assert_eq!(starts, [0x8, 0x28, 0x38, 0x58, 0x68, 0x70]);
    let names: Vec<_> = graph.loops(function).iter().map(|l| l.body.len()).collect();
    assert_eq!(names, [2], "the loop that BRK leaves");
}

#[test]
fn commas_that_12_8_leaves_out_of_its_json_are_put_back() {
    for (json, text) in [
        ("R9[R10]", "R9, [R10]"),
        ("P0[UR48+0x38628],R2", "P0, [UR48+0x38628], R2"),
        ("URZ[UR6],UR4", "URZ, [UR6], UR4"),
        ("[UR8][UR6]", "[UR8], [UR6]"),
        ("[UR8],[UR6],desc[UR4][R2.64]", "[UR8], [UR6], desc[UR4][R2.64]"),
        ("R0,c[0x0][R2],-c[0x2][0x10].H1", "R0, c[0x0][R2], -c[0x2][0x10].H1"),
        ("gdesc[UR4],R24", "gdesc[UR4], R24"),
        ("R1", "R1"),
    ] {
        let listing = read(&format!(
            r#"[{{"SM":{{"version":{{"major":9,"minor":0}}}}}},[{{"function-name":"k","sass-instructions":[{{"opcode":"X","operands":"{json}"}}]}}]]"#
        ));
        assert_eq!(listing.functions[0].instructions[0].operands(), text);
    }
}
